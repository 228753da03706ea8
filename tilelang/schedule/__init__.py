"""What every back end plans with; knows no device."""
