//! Feeds arbitrary bytes to the reader of Perfetto traces and asks what it makes of them; both must answer or refuse.
//!
//! Run with `fuzz/run perfetto`; a good start is what `opcollect tpu view` writes of a
//! small capture.

use capture::trace::{Bounds, ask, load};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let bounds = Bounds::default();
    let Ok(mut database) = load(bytes, &bounds) else { return };
    let question = "select s.name, dur, depth, t.name, a.key, a.display_value from slice s left join track t \
                    on s.track_id = t.id left join args a on a.arg_set_id = s.arg_set_id order by ts, dur desc";
    ask(&mut database, question, &bounds).expect("the tables are ours");
}
