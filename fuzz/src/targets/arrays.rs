//! Reads arbitrary bytes as `.npy` and `.npz` model inputs. Useful seeds are files of `numpy.save` and `numpy.savez`.

use engine::network::{arrays, npy};
use models::TensorType;

pub fn run(bytes: &[u8]) {
    let wanted = TensorType::f32(&[2, 3]);
    if let Ok(tensor) = npy::parse_tensor(bytes, &wanted) {
        assert_eq!(tensor.tensor_type(), &wanted);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.npz");
    std::fs::write(&path, bytes).expect("a file");
    if let Ok(tensor) = arrays::read_tensor(&path, "x", &wanted) {
        assert_eq!(tensor.tensor_type(), &wanted);
    }
    let _ = arrays::tensor_names(&path);
}
