"""The oracle: plain NumPy integer arithmetic. It defines what every other backend must compute."""
