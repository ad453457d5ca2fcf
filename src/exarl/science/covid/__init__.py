"""An epidemic with mitigation as action and intensive care as limit."""
