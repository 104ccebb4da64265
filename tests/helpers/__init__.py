"""What several tests share: tiny data, small runs, comparisons."""
