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

/// Time between checks whether to stop.
const CHECK: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Breeder {
    supervisor: Rc<RefCell<Supervisor<BreedJob, BreedReply>>>,
    should_stop: Rc<dyn Fn() -> bool>,
}

impl Breeder {
    /// `should_stop` ends a batch early.
    pub fn new(
        program: &Path,
        start_deadline: Duration,
        memory_bytes: u64,
        should_stop: impl Fn() -> bool + 'static,
    ) -> Breeder {
        let mut spec = WorkerSpec::new(program, &["breed"]);
        spec.start_deadline = start_deadline;
        spec.limits = ProcessLimits { memory_bytes: Some(memory_bytes), ..ProcessLimits::default() };
        Breeder { supervisor: Rc::new(RefCell::new(Supervisor::new(spec))), should_stop: Rc::new(should_stop) }
    }

    /// Returns no schedules if the batch was ended early.
    pub fn breed_schedules(&self, job: &BreedJob) -> Result<Vec<Schedule>, String> {
        let mut supervisor = self.supervisor.borrow_mut();
        supervisor.send_request(job, DEADLINE).map_err(|fault| fault.to_string())?;
        while supervisor.pending_request().is_some_and(|waiting| !waiting.is_over_within(CHECK)) {
            if (self.should_stop)() {
                supervisor.recycle_worker();
                return Ok(Vec::new());
            }
        }
        match supervisor.receive_reply() {
            Ok(BreedReply::Bred(bred)) => {
                let read = bred.iter().map(|text| Schedule::from_json(text).map_err(|error| error.to_string()));
                read.collect()
            }
            Ok(BreedReply::Failed(why)) => Err(why),
            Err(fault) => Err(fault.to_string()),
        }
    }
}
