//! Tests pinning of a whole process, which needs a process of its own.

use measure::affinity::{allowed_cpus, pin_all, thread_masks, verify_pinning};
use std::sync::mpsc::channel;

#[test]
fn threads_that_were_there_before_and_those_they_make_are_pinned_too() {
    let first = allowed_cpus().expect("this thread runs somewhere")[0];
    let (go, wait) = channel::<()>();
    let (tell, told) = channel();
    let before = std::thread::spawn(move || {
        wait.recv().expect("a word");
        std::thread::spawn(move || tell.send(allowed_cpus().expect("readable")).expect("somebody listens")).join()
    });
    pin_all(&[first]).expect("it runs there already");
    assert!(thread_masks().expect("procfs").len() > 1);
    verify_pinning(&[first]).expect("all are inside");
    go.send(()).expect("it waits");
    assert_eq!(told.recv().expect("its child told"), [first]);
    before.join().expect("thread").expect("child");
}
