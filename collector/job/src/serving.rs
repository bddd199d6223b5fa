//! A thread that serves jobs of one model. Thread pools, counters and CPU affinity belong to the thread that loaded a
//! model, so a runner that keeps a model for the next job keeps the model's thread.

use crate::NetworkJob;
use crate::kept::{JobCache, cache_key};
use anyhow::{Context, Result};
use measure::counters::Backend;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

pub struct Serving<Answer> {
    jobs: Option<Sender<NetworkJob>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl<Answer: Send + 'static> Serving<Answer> {
    pub fn start_thread(
        serve: impl FnOnce(&Receiver<NetworkJob>, &Sender<Answer>) + Send + 'static,
    ) -> Serving<Answer> {
        let (jobs, taken) = channel();
        let (given, answers) = channel();
        let thread = std::thread::spawn(move || serve(&taken, &given));
        Serving { jobs: Some(jobs), answers, thread: Some(thread) }
    }

    /// Sends a job to the thread and waits for the reply; None if the thread panicked.
    pub fn request_reply(&self, job: &NetworkJob) -> Option<Answer> {
        // A thread that ended has sent an error or panicked.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job.clone()).is_ok());
        self.answers.recv().ok()
    }
}

impl<Answer: Send + 'static> JobCache<Serving<Result<Answer>>> {
    /// Runs a job on the cached thread of these files, or on a new thread, and caches the thread again unless it ended.
    pub fn serve_job(
        &mut self,
        job: &NetworkJob,
        files: &[&Path],
        serve: impl FnOnce(&Receiver<NetworkJob>, &Sender<Result<Answer>>) -> Result<()> + Send + 'static,
        outlives: impl FnOnce(&Answer) -> bool,
    ) -> Result<Answer> {
        let key = cache_key(files, &job.cpus, job.placement);
        // Counters must be opened before the threads that they count.
        let is_counted = job.counters.backend != Backend::None;
        let serving = self.take_matching(&key).filter(|_| !is_counted);
        let serving = serving.unwrap_or_else(|| {
            Serving::start_thread(move |jobs, answers| {
                // The first error is sent to the requester; the thread then ends.
                if let Err(error) = serve(jobs, answers) {
                    let _ = answers.send(Err(error));
                }
            })
        });
        let answer = serving.request_reply(job).context("the measuring thread panicked")??;
        if !is_counted && outlives(&answer) {
            self.store_value(key, serving);
        }
        Ok(answer)
    }
}

impl<Answer> Drop for Serving<Answer> {
    fn drop(&mut self) {
        self.jobs = None;
        // Frees the memory of this model before the next one is loaded.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
