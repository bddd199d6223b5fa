//! The breeder, which creates new schedules from measured schedules by TVM's evolutionary search.

use crate::apply::{SpaceCache, apply_schedule};
use crate::builder::Builder;
use crate::tvm::evolution::{Ancestor, Breeding, breed_schedules};
use crate::tvm::features;
use anyhow::{Context, Result};
use job::space::Schedule;
use job::{BreedJob, BreedReply};
use search::model::{Goal, TrainingRows, iter_features};

#[derive(Default)]
pub struct Breeder {
    builder: Builder,
    spaces: SpaceCache,
}

impl Breeder {
    pub fn answer_job(&mut self, job: &BreedJob) -> BreedReply {
        match self.breed_traces(job) {
            Ok(bred) => BreedReply::Bred(bred),
            Err(error) => BreedReply::Failed(format!("{error:#}")),
        }
    }

    fn breed_traces(&mut self, job: &BreedJob) -> Result<Vec<String>> {
        // With several threads, the assignment of samples to threads varies, so a seed would not determine the result.
        const THREADS: i64 = 1;
        let drawn = Schedule::MetaSchedule { space: 0, seed: job.seed, trace: None };
        let (lowered, target) = self.builder.lowered_task(&job.task, &job.target, &drawn)?;
        self.spaces.clear();
        let (mut ancestors, mut lessons, mut labels) = (Vec::new(), TrainingRows::default(), Vec::new());
        let best_ns = job.measured.iter().map(|(_, time_ns)| *time_ns).fold(f64::INFINITY, f64::min);
        for (text, time_ns) in &job.measured {
            let schedule = Schedule::from_json(text)?;
            // Spaces with tensor cores have post-processors of their own.
            if schedule.has_fragments() {
                continue;
            }
            let moves = apply_schedule(lowered, &schedule, &target, &mut self.spaces)
                .context("cannot replay a measured schedule")?;
            // The judge learns from the same features of ancestors that it later gets of new candidates.
            lessons.add_row(iter_features(&features::merge_stores(&features::store_features(&moves, &target)?)));
            labels.push((best_ns / time_ns) as f32);
            ancestors.push(Ancestor { moves, time_ns: *time_ns });
        }
        let model = lessons.train_trees(&labels, Goal::Value, std::iter::once(job.seed.unsigned_abs()))?;
        let breeding = Breeding { count: i64::try_from(job.count)?, seed: job.seed, threads: THREADS };
        let judge = move |all: &[features::Features]| {
            all.iter().map(|features| model.predict_features(iter_features(features)).mean).collect()
        };
        let bred = breed_schedules(&lowered.module, &target, &ancestors, breeding, judge)
            .context("TVM's evolutionary search failed")?;
        Ok(bred.into_iter().map(|trace| Schedule::Trace { trace }.to_json()).collect())
    }
}
