//! predictor
