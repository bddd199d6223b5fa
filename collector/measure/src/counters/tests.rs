//! Tests that read real counters of this machine; missing counters must be refused with a reason.

use std::{hint::black_box, sync::atomic::Ordering};

use super::*;

fn request(backend: Backend, events: &[&str]) -> CounterRequest {
    CounterRequest { backend, events: events.iter().map(ToString::to_string).collect(), ..CounterRequest::default() }
}

fn counted(session: &mut CounterSession, work: impl FnOnce()) -> Vec<Reading> {
    let mut before = vec![None; session.channels().len()];
    let mut after = before.clone();
    session.read_channels(&mut before);
    work();
    session.read_channels(&mut after);
    let passed = |(after, before): (&Option<Reading>, &Option<Reading>)| after.as_ref()?.change_since(before.as_ref()?);
    after.iter().zip(&before).map(|both| passed(both).expect("every channel counts")).collect()
}

fn spin() {
    let mut state = 1_u64;
    for _ in 0..2_000_000 {
        state = black_box(state.wrapping_mul(31));
    }
}

#[test]
fn the_last_step_gives_its_figures_everywhere() {
    let mut session = CounterSession::open_counters(&request(
        Backend::Usage,
        &["thread_cpu_ns", "process_cpu_ns", "minor_faults", "cycles"],
    ));
    let values = counted(&mut session, spin);
    assert!(values[0].value > 0 && values[1].value > 0, "{values:?}");
    let refused: Vec<_> = session.refusals().iter().map(|refusal| refusal.event.as_str()).collect();
    assert_eq!(refused, ["cycles"]);
    let coverage: Vec<_> = session.channels().iter().map(|channel| channel.coverage).collect();
    assert_eq!(coverage, [Coverage::Thread, Coverage::Process, Coverage::Process]);
}

#[test]
fn every_counter_is_given_or_refused_with_a_reason() {
    for counter in list_available(&CounterRequest::default()) {
        assert!(counter.given.is_some() || !counter.refusals.is_empty(), "{counter:?}");
        assert!(counter.refusals.iter().all(|refusal| !refusal.why.is_empty()), "{counter:?}");
    }
}

#[test]
fn nothing_is_counted_when_counters_are_off_and_unknown_names_are_told() {
    let session =
        CounterSession::open_counters(&CounterRequest { backend: Backend::None, ..CounterRequest::default() });
    assert!(session.channels().is_empty() && session.refusals().is_empty());
    let session = CounterSession::open_counters(&request(Backend::Auto, &["cylces", "perf:xyz", "papi:no\0name"]));
    assert_eq!(session.refusals().len(), 3, "{:?}", session.refusals());
    assert!(session.channels().is_empty());
    let session =
        CounterSession::open_counters(&request(Backend::Auto, &["gpu_power_watts", "cupti:sm__inst_executed.sum"]));
    let steps: Vec<Step> = session.refusals().iter().map(|refusal| refusal.step).collect();
    assert_eq!(steps, [Step::Nvml, Step::Cupti]);
    assert!(session.refusals().iter().all(|refusal| refusal.why.contains("a GPU counter")));
}

#[test]
fn perf_counts_this_thread_and_with_descendants_those_it_starts() {
    let mut alone = CounterSession::open_counters(&request(Backend::Perf, &["thread_cpu_ns"]));
    let with_descendants = CounterRequest { with_descendants: true, ..request(Backend::Perf, &["thread_cpu_ns"]) };
    let mut family = CounterSession::open_counters(&with_descendants);
    if alone.channels().is_empty() || family.channels().is_empty() {
        eprintln_skip("perf events", &alone.refusals());
        return;
    }
    let mut family_values = Vec::new();
    let alone_values = counted(&mut alone, || {
        family_values = counted(&mut family, || std::thread::spawn(spin).join().expect("thread"));
    });
    // The work happens on another thread.
    assert!(family_values[0].value > 2 * alone_values[0].value, "{family_values:?} against {alone_values:?}");
}

#[test]
fn hardware_counters_count_or_are_refused_by_number() {
    let mut session = CounterSession::open_counters(&request(Backend::Perf, &["instructions"]));
    match session.refusals() {
        [] => {
            let values = counted(&mut session, spin);
            assert!(values[0].value > 2_000_000 || values[0].running_ns == 0, "{values:?}");
        }
        refusals => assert!(refusals[0].errno.is_some() && refusals[0].why.len() > 20, "{refusals:?}"),
    }
}

#[test]
fn papi_counts_a_number_of_ours() {
    let number = match papi::export_number("ops_run") {
        Ok(number) => number,
        Err(error) => return eprintln_skip("PAPI with software-defined events", &error),
    };
    let papi = papi::open_library().expect("it exports, so it is there");
    let components = papi.list_components();
    assert!(
        components.iter().any(|component| component.name == "sde" && component.disabled.is_none()),
        "{components:?}"
    );
    assert!(papi.native_events("sde", 100).contains(&"sde:::opcollect::ops_run".to_string()));
    let events = ["papi:sde:::opcollect::ops_run", "papi:no_such::EVENT"];
    let mut session = CounterSession::open_counters(&request(Backend::Auto, &events));
    assert_eq!(session.channels().len(), 1);
    assert_eq!((session.refusals().len(), session.refusals()[0].step), (1, Step::Papi));
    let misspelled = CounterSession::open_counters(&request(Backend::Auto, &["papi:sde:::opcollect::ops_ran"]));
    let why = misspelled.refusals().iter().map(|refusal| refusal.why.as_str()).collect::<Vec<_>>().join("; ");
    assert!(misspelled.channels().is_empty() && why.contains("ops_run`?"), "PAPI takes it, and it never counts: {why}");
    let values = counted(&mut session, || {
        number.fetch_add(42, Ordering::Relaxed);
    });
    assert_eq!(values[0].value, 42);
}

#[test]
fn papi_sets_belong_to_their_thread_and_many_can_live() {
    if let Err(error) = papi::open_library() {
        return eprintln_skip("PAPI", &error);
    }
    let events = ["instructions", "cycles", "thread_cpu_ns"];
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..3 {
                    let mut session = CounterSession::open_counters(&request(Backend::Papi, &events));
                    assert_eq!(
                        session.channels().is_empty(),
                        session.refusals().len() >= 3,
                        "{:?}",
                        session.refusals()
                    );
                    let values = counted(&mut session, spin);
                    assert!(values.iter().all(|value| value.value > 0), "{values:?}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("thread");
    }
}

#[test]
fn a_set_that_does_not_start_leaves_no_channel() {
    if let Err(error) = papi::export_number("sets_started") {
        return eprintln_skip("PAPI with software-defined events", &error);
    }
    let events = request(Backend::Auto, &["papi:sde:::opcollect::sets_started", "minor_faults"]);
    let first = CounterSession::open_counters(&events);
    assert_eq!(first.channels().len(), 2, "{:?}", first.refusals());
    let mut second = CounterSession::open_counters(&events);
    let names: Vec<_> = second.channels().iter().map(|channel| channel.name.as_str()).collect();
    assert_eq!(names, ["minor_faults"], "what does not count would show zeros");
    let [refusal] = second.refusals() else { panic!("{:?}", second.refusals()) };
    assert!(refusal.errno.is_some() && refusal.why.contains("cannot start its event set"), "{refusal:?}");
    counted(&mut second, spin);
    drop((first, second));
    assert_eq!(CounterSession::open_counters(&events).channels().len(), 2, "the component is free again");
}

#[test]
fn a_set_that_does_not_start_goes_down_the_ladder() {
    let events = request(Backend::Auto, &["thread_cpu_ns", "thread_cpu_ns", "instructions"]);
    let first = CounterSession::open_counters(&events);
    if first.channels().first().is_none_or(|channel| channel.step != Step::Papi) {
        return eprintln_skip("PAPI with the processor's events", &first.refusals());
    }
    let mut second = CounterSession::open_counters(&events);
    let steps: Vec<_> = second.channels().iter().filter(|channel| channel.name == "thread_cpu_ns").collect();
    assert!(steps.len() == 1 && steps[0].step > Step::Papi, "{steps:?}");
    assert!(
        second.refusals().iter().any(|refusal| refusal.why.contains("cannot start its event set")),
        "{:?}",
        second.refusals()
    );
    assert!(counted(&mut second, spin).iter().all(|reading| reading.value > 0));
}

#[test]
fn a_sampler_sees_where_this_program_is() {
    let cpus = crate::affinity::allowed_cpus().expect("the system tells the CPUs");
    let mut sampler = match Sampler::open_sampler(&cpus, 1999) {
        Ok(sampler) => sampler,
        Err(refusal) => {
            assert!(refusal.errno.is_some() && refusal.why.len() > 5, "{refusal:?}");
            return eprintln_skip("sampling", &refusal);
        }
    };
    let mut before = 0;
    sampler.take_samples(|_| before += 1);
    assert_eq!(before, 0, "it is switched off at first");
    sampler.set_enabled(true);
    let mut found = Vec::new();
    // A busy processor takes few samples of this thread.
    for _ in 0..2000 {
        spin();
        sampler.take_samples(|address| found.push(address));
        if found.len() > 20 {
            break;
        }
    }
    sampler.set_enabled(false);
    assert!(found.len() > 20 && found.iter().all(|address| *address > 4096), "{found:?}");
    sampler.take_samples(|_| {});
    spin();
    let mut after = 0;
    sampler.take_samples(|_| after += 1);
    assert_eq!(after, 0, "it is switched off again");
}

#[allow(clippy::print_stderr)]
fn eprintln_skip(what: &str, why: &dyn std::fmt::Debug) {
    eprintln!("SKIPPED: no {what} on this machine: {why:?}");
}
