//! Reads arbitrary bytes as traces for `opcollect replay`; accepted traces have a task and allowed schedule moves.

use engine::replay::read_moves;

pub fn run(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("a temporary file can be written");
    let Ok((task, candidates)) = read_moves(file.path()) else { return };
    task.check().expect("a task of the model");
    candidates.iter().for_each(|moves| moves.check_again().expect("accepted moves are on the list"));
}
