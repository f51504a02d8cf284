//! (head to be written)
