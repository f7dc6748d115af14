"""The version of binpoint, as `binpoint --version` and the artifacts it writes say it."""

VERSION = "0.1.0"
