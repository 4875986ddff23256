"""The lecture's figures beside ours, each with an interval, a verdict and the reason for it."""
