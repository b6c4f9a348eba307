"""What a run says about itself: where its time went, why it hangs, whether a second pass agrees."""
