"""A call's life: begin, intend, change, record what is, one finish; recovery, hold, approvals."""
