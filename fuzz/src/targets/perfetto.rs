//! Loads arbitrary bytes as a Perfetto trace and queries it. A useful seed is the output of `opcollect tpu view`.

use capture::trace::{QueryBounds, load_tables, run_query};

pub fn run(bytes: &[u8]) {
    let bounds = QueryBounds::default();
    let Ok(mut database) = load_tables(bytes, &bounds) else { return };
    let question = "select s.name, dur, depth, t.name, a.key, a.display_value from slice s left join track t \
                    on s.track_id = t.id left join args a on a.arg_set_id = s.arg_set_id order by ts, dur desc";
    run_query(&mut database, question, &bounds).expect("the tables exist");
}
