"""What pages are made of: the chart library, the look, and text from data made safe. The report and the live page use it."""
