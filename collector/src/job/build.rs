//! The builder: task and schedule in, object out.

use super::{Artifact, BuildJob, BuildReply};
use crate::lower::{Lowered, lower};
use crate::space::apply::{ApplyError, SpaceCache, apply};
use crate::space::{Layout, Schedule};
use crate::tvm::compile::{CompileTarget, compile};
use crate::tvm::{object, trace};
use anyhow::{Context, Result};
use models::Task;
use std::time::Instant;

/// Answers build jobs; keeps what the next job of the same task can use.
#[derive(Default)]
pub struct Builder {
    target: Option<(String, CompileTarget)>,
    lowered: Option<(String, Layout, Task, Lowered)>,
    spaces: SpaceCache,
}

impl Builder {
    /// Does one job.
    pub fn answer(&mut self, job: &BuildJob) -> BuildReply {
        match self.build(job) {
            Ok(artifact) => BuildReply::Built(artifact),
            Err(error) => match error.downcast_ref::<ApplyError>() {
                Some(ApplyError::Rejected) => BuildReply::Rejected(error.to_string()),
                _ => BuildReply::Failed(format!("{error:#}")),
            },
        }
    }

    fn build(&mut self, job: &BuildJob) -> Result<Artifact> {
        let start = Instant::now();
        let schedule = Schedule::from_json(&job.schedule)?;
        let target = self.target(&job.target)?;
        self.lower(&job.task, schedule.layout())?;
        let (_, _, task, lowered) = self.lowered.as_ref().expect("just lowered");
        let moves = apply(task, lowered, &schedule, &target, &mut self.spaces)?;
        let trace = if job.wants_trace { Some(trace::to_json(&moves)?.to_string()) } else { None };
        let module = moves.module()?;
        let schedule_ms = start.elapsed().as_secs_f64() * 1e3;
        let object = compile(&module, &target).context("cannot compile")?;
        Ok(Artifact {
            code_bytes: object::code_bytes(&object.bytes).context("the compiler made an unreadable object")?,
            object: object.bytes,
            packings: lowered.packings.clone(),
            trace,
            schedule_ms,
            lower_ms: object.lower_ms,
            codegen_ms: object.codegen_ms,
        })
    }

    fn target(&mut self, text: &str) -> Result<CompileTarget> {
        if let Some((known, target)) = &self.target
            && known == text
        {
            return Ok(target.clone());
        }
        let target = CompileTarget::from_json(text).with_context(|| format!("cannot use the target {text}"))?;
        self.spaces.clear();
        self.target = Some((text.to_owned(), target.clone()));
        Ok(target)
    }

    fn lower(&mut self, text: &str, layout: Layout) -> Result<()> {
        if matches!(&self.lowered, Some((known, with, ..)) if known == text && *with == layout) {
            return Ok(());
        }
        let task: Task = serde_json::from_str(text).context("cannot read the task")?;
        let lowered = lower(&task, layout).context("cannot lower the task")?;
        self.spaces.clear();
        self.lowered = Some((text.to_owned(), layout, task, lowered));
        Ok(())
    }
}
