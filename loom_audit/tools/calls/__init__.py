"""How a call goes: looked up, permitted, carried out, put on record."""
