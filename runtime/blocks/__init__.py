"""Running networks whose feature maps have one exponent a block (JP7819764B2)."""
