//! Tests of TFLite files that are read and that are refused.
