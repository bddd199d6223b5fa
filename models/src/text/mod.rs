//! Graphs and tasks as text that reads back as the same graph or task.
//!
//! A graph is one line per tensor or operator:
//!
//! ```text
//! graph "net"
//! input %0 "x": f32[1,3,8,8]
//! constant %1 "w": f32[4,3,3,3] = random(1)
//! %2 "y": f32[1,4,6,6] = conv(%0, %1) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1] at "layer1"
//! output %2
//! ```
//!
//! A task is one line of steps separated by `|`. `_` is the result of the previous step; `#1` is input tensor 1, used
//! again:
//!
//! ```text
//! conv(f32[1,3,8,8], const f32[4,3,3,3]) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1] | unary(_) function="relu"
//! ```
//!
//! Operators and attributes have the names of the serialised form. Numbers in the text do not determine how much memory
//! is allocated, ids must be consecutive, and a parsed graph or task is checked before it is returned.

mod graph;
mod scan;
mod task;
