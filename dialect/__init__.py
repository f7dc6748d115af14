"""The xDSL dialects: nn (layers in real numbers) and fx (fixed point)."""
