//! A thread that serves jobs of one model until it is let go.
//!
//! What measures belongs to the thread that loaded it: pools of threads, counters, the CPUs it is confined to. So a runner
//! that keeps a model for the next round keeps its thread.

use crate::NetworkJob;
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

impl<Answer> Drop for Serving<Answer> {
    fn drop(&mut self) {
        self.jobs = None;
        // Its memory is free before the next model is loaded. What it has to say was said.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
