"""Object detection around a network: pictures in, boxes with classes and scores out."""
