//! Learns from a dataset how fast an operator, a schedule or a model will be, and says how sure it is.
//!
//! Nothing is learned yet: the dataset comes first. This crate keeps the place and the arrow of the workspace: it may
//! use `datasets` and `models`, never TVM.

#![forbid(unsafe_code)]
