"""The shipped target descriptions. This folder is installed as `binpoint.targets`, so that `-t dlu2048` finds them."""
