//! The breeder process, which generates schedules of TVM's own search space. The process is started on first use.

use job::space::Schedule;
use job::{BreedJob, BreedReply};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use worker::{ProcessLimits, Supervisor, WorkerSpec};

/// Timeout of a batch. On a machine that is not overloaded, batches take far less.
const DEADLINE: Duration = Duration::from_secs(900);

#[derive(Clone)]
pub struct Breeder(Rc<RefCell<Supervisor<BreedJob, BreedReply>>>);

impl Breeder {
    pub fn new(program: &Path, start_deadline: Duration, memory_bytes: u64) -> Breeder {
        let mut spec = WorkerSpec::new(program, &["breed"]);
        spec.start_deadline = start_deadline;
        spec.limits = ProcessLimits { memory_bytes: Some(memory_bytes), ..ProcessLimits::default() };
        Breeder(Rc::new(RefCell::new(Supervisor::new(spec))))
    }

    pub fn breed_schedules(&self, job: &BreedJob) -> Result<Vec<Schedule>, String> {
        match self.0.borrow_mut().call_worker(job, DEADLINE) {
            Ok(BreedReply::Bred(bred)) => {
                let read = bred.iter().map(|text| Schedule::from_json(text).map_err(|error| error.to_string()));
                read.collect()
            }
            Ok(BreedReply::Failed(why)) => Err(why),
            Err(fault) => Err(fault.to_string()),
        }
    }
}
