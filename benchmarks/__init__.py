"""What the program costs, each figure beside what it is compared with in the same run."""
