//! TFLite files that are read, and those that are refused.
