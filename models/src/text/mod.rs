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
//! A task is one line, each step after a bar reading the one before as `_`; a tensor used again is `#` and its number:
//!
//! ```text
//! conv(f32[1,3,8,8], const f32[4,3,3,3]) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1] | unary(_) function="relu"
//! ```
//!
//! Operators and their attributes are those of the serialised form, so a new operator needs nothing here. Every part
//! is read by length that is there, ids must be dense, and a parsed graph or task is checked before it is returned.

mod graph;
mod scan;
mod task;
