//! Feeds arbitrary bytes to the readers of arrays that are given as inputs of models, `.npy` and `.npz`; each must answer with an
//! error or a tensor of the wanted type.
//!
//! Run with `fuzz/run arrays`; good starts are files of `numpy.save` and `numpy.savez`.

use engine::network::{arrays, npy};
use models::TensorType;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let wanted = TensorType::f32(&[2, 3]);
    if let Ok(tensor) = npy::parse(bytes, &wanted) {
        assert_eq!(tensor.ty(), &wanted);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.npz");
    std::fs::write(&path, bytes).expect("a file");
    if let Ok(tensor) = arrays::read(&path, "x", &wanted) {
        assert_eq!(tensor.ty(), &wanted);
    }
    let _ = arrays::names(&path);
}
