//! The breeder: a process that breeds schedules of TVM's own space, started when it is first needed.

use job::space::Schedule;
use job::{BreedJob, BreedReply};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use worker::{Limits, Supervisor, WorkerSpec};

/// A batch takes seconds to a minute; this much on a machine that does many other things.
const DEADLINE: Duration = Duration::from_secs(900);

/// One process that all searches of a campaign ask in turn.
#[derive(Clone)]
pub struct Breeder(Rc<RefCell<Supervisor<BreedJob, BreedReply>>>);

impl Breeder {
    /// A breeder of this program, which may take so long to start and so much memory.
    pub fn new(program: &Path, start_deadline: Duration, memory_bytes: u64) -> Breeder {
        let mut spec = WorkerSpec::new(program, &["breed"]);
        spec.start_deadline = start_deadline;
        spec.limits = Limits { memory_bytes: Some(memory_bytes), ..Limits::default() };
        Breeder(Rc::new(RefCell::new(Supervisor::new(spec))))
    }

    /// Does one job: schedules, or why there are none.
    pub fn breed(&self, job: &BreedJob) -> Result<Vec<Schedule>, String> {
        match self.0.borrow_mut().call(job, DEADLINE) {
            Ok(BreedReply::Bred(bred)) => {
                let read = bred.iter().map(|text| Schedule::from_json(text).map_err(|error| error.to_string()));
                read.collect()
            }
            Ok(BreedReply::Failed(why)) => Err(why),
            Err(fault) => Err(fault.to_string()),
        }
    }
}
