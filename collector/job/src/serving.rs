//! A thread that serves jobs of one model until it is let go.
//!
//! What measures belongs to the thread that loaded it: pools of threads, counters, the CPUs it is confined to. So a runner
//! that keeps a model for the next round keeps its thread.

use crate::NetworkJob;
use crate::kept::{Kept, stamps};
use anyhow::{Context, Result};
use measure::counters::Backend;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A thread with what it loaded.
pub struct Serving<Answer> {
    jobs: Option<Sender<NetworkJob>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl<Answer: Send + 'static> Serving<Answer> {
    /// Begins a thread. What it does takes jobs and gives an answer to each, until there are no more.
    pub fn begin(serve: impl FnOnce(&Receiver<NetworkJob>, &Sender<Answer>) + Send + 'static) -> Serving<Answer> {
        let (jobs, taken) = channel();
        let (given, answers) = channel();
        let thread = std::thread::spawn(move || serve(&taken, &given));
        Serving { jobs: Some(jobs), answers, thread: Some(thread) }
    }

    /// The answer to a job; nothing where the thread panicked.
    pub fn ask(&self, job: &NetworkJob) -> Option<Answer> {
        // A thread that ended has said why, or panicked.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job.clone()).is_ok());
        self.answers.recv().ok()
    }
}

impl<Answer: Send + 'static> Kept<Serving<Result<Answer>>> {
    /// The answer to a job by the thread that was kept for these files, or by a new one. It is kept after an answer that
    /// it outlives.
    pub fn ask(
        &mut self,
        job: &NetworkJob,
        files: &[&Path],
        serve: impl FnOnce(&Receiver<NetworkJob>, &Sender<Result<Answer>>) -> Result<()> + Send + 'static,
        outlives: impl FnOnce(&Answer) -> bool,
    ) -> Result<Answer> {
        let stamps = stamps(files, &job.cpus, job.placement);
        // Counters have to be there before the threads that they count.
        let is_counted = job.counters.backend != Backend::None;
        let serving = self.take(&stamps).filter(|_| !is_counted);
        let serving = serving.unwrap_or_else(|| {
            Serving::begin(move |jobs, answers| {
                // Whoever asked hears of the first failure; after it nothing is asked any more.
                if let Err(error) = serve(jobs, answers) {
                    let _ = answers.send(Err(error));
                }
            })
        });
        let answer = serving.ask(job).context("the measuring thread panicked")??;
        if !is_counted && outlives(&answer) {
            self.put(stamps, serving);
        }
        Ok(answer)
    }
}

impl<Answer> Drop for Serving<Answer> {
    fn drop(&mut self) {
        self.jobs = None;
        // Its memory is free before the next model is loaded. What it has to say was said.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
