"""Training as JP7367595B2 describes it: a host and an accelerator that exchange messages, mini-batch by mini-batch."""
