"""Groups of properties that operations of both dialects share."""

from __future__ import annotations

from abc import ABC
from fractions import Fraction

from xdsl.irdl import IRDLOperation, prop_def
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import CountAttr, FractionAttr, FractionsAttr, PaddingAttr, PairAttr


class Windowed(IRDLOperation, ABC):
    """A window that slides over the feature map; padding is (top, left, bottom, right)."""

    kernel = prop_def(PairAttr)
    stride = prop_def(PairAttr, default_value=PairAttr((1, 1)))
    padding = prop_def(PaddingAttr, default_value=PaddingAttr((0, 0, 0, 0)))


class Convolved(Windowed, ABC):
    """A window of filters, its elements `dilation` apart, over each group of channels on its own."""

    dilation = prop_def(PairAttr, default_value=PairAttr((1, 1)))
    groups = prop_def(CountAttr, default_value=CountAttr(1))


class PixelInput(IRDLOperation, ABC):
    """How pixels become numbers: a pixel p of channel c enters as (p * scale - mean[c]) / deviation[c]."""

    scale = prop_def(FractionAttr, default_value=FractionAttr(Fraction(1)))
    mean = prop_def(FractionsAttr, default_value=FractionsAttr((Fraction(0),)))
    deviation = prop_def(FractionsAttr, default_value=FractionsAttr((Fraction(1),)))

    def check_pixels(self, channels: int) -> None:
        """Raise VerifyException unless mean and deviation have one entry, or one a channel, and none divides by 0."""
        for name, values in (("mean", self.mean.data), ("deviation", self.deviation.data)):
            if len(values) not in (1, channels):
                raise VerifyException(f"{name} has {len(values)} entries, expected 1 or {channels}")
        if 0 in self.deviation.data:
            raise VerifyException("a deviation of 0")
