//! Whole ways through the normalizer.
