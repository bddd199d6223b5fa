//! Tests that processes on one store share their work.
#![allow(missing_docs)]

use datasets::{Key, Store};
use std::collections::HashSet;
use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

fn key(number: u8) -> Key {
    Key([number; 16])
}

fn keys(numbers: &[u8]) -> Vec<Key> {
    numbers.iter().map(|number| key(*number)).collect()
}

fn set(numbers: &[u8]) -> HashSet<Key> {
    keys(numbers).into_iter().collect()
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    (folder, store)
}

#[test]
fn what_one_has_claimed_the_other_leaves() {
    let (_folder, store) = store();
    let (mut one, mut other) = (store.create_claims().unwrap(), store.create_claims().unwrap());
    assert_eq!(one.claim_free(&keys(&[1, 2, 3])).unwrap().held, set(&[]));
    assert_eq!(other.claim_free(&keys(&[2, 3, 4, 5])).unwrap().held, set(&[2, 3]));
    assert_eq!(one.claim_free(&keys(&[1, 5, 6])).unwrap().held, set(&[5]), "its own it may take again");
    drop(one);
    assert_eq!(other.claim_free(&keys(&[1, 2, 3, 6])).unwrap().held, set(&[]), "claims end with their process");
}

#[test]
fn many_may_begin_at_one_moment() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let of_one: Vec<_> =
                    (0..100).map(|_| (store.create_claims().unwrap(), store.create_status_file().unwrap())).collect();
                assert_eq!(of_one.len(), 100);
            });
        }
    });
}

#[test]
fn news_is_what_others_claimed_in_between() {
    let (_folder, store) = store();
    let mut one = store.create_claims().unwrap();
    assert!(one.claim_free(&keys(&[1])).unwrap().has_news, "at first all is new");
    assert!(!one.claim_free(&keys(&[2])).unwrap().has_news);
    let mut other = store.create_claims().unwrap();
    other.claim_free(&keys(&[7])).unwrap();
    drop(other);
    assert!(one.claim_free(&keys(&[3])).unwrap().has_news, "it has come and gone, and may have left records");
    assert!(!one.claim_free(&keys(&[4])).unwrap().has_news);
}

fn foreign_claim(store: &Store, name: &str, text: &str, age: Duration) {
    let path = store.root().join("claims").join(name);
    std::fs::write(&path, text).unwrap();
    let times = FileTimes::new().set_modified(SystemTime::now() - age);
    File::options().append(true).open(&path).unwrap().set_times(times).unwrap();
}

#[test]
fn a_claim_of_another_machine_holds_while_it_is_renewed() {
    let (_folder, store) = store();
    let mut own = store.create_claims().unwrap();
    foreign_claim(&store, "1-2-other.txt", &format!("{}\n", key(1)), Duration::from_secs(60));
    foreign_claim(&store, "1-3-other.txt", &format!("{}\n", key(2)), Duration::from_secs(7200));
    assert_eq!(own.claim_free(&keys(&[1, 2])).unwrap().held, set(&[1]));
    assert!(!store.root().join("claims/1-3-other.txt").exists(), "what has run out is removed");
}

#[test]
fn what_is_no_claim_is_passed_over() {
    let (_folder, store) = store();
    let mut own = store.create_claims().unwrap();
    let text = format!("nonsense\n\n{}\n{}", key(1), &key(2).to_hex()[..20]);
    foreign_claim(&store, "1-2-other.txt", &text, Duration::ZERO);
    std::fs::write(store.root().join("claims/turn"), "many").unwrap();
    assert_eq!(own.claim_free(&keys(&[1, 2])).unwrap().held, set(&[1]));
}

#[test]
fn damaged_files_of_others_do_not_stop_a_claim() {
    let (_folder, store) = store();
    let mut own = store.create_claims().unwrap();
    let text = [b"\xff\xfe\n".as_slice(), format!("{}\n", key(1)).as_bytes()].concat();
    std::fs::write(store.root().join("claims/1-2-other.txt"), text).unwrap();
    for turn in [b"\xff".as_slice(), u64::MAX.to_string().as_bytes()] {
        std::fs::write(store.root().join("claims/turn"), turn).unwrap();
        let taken = own.claim_free(&keys(&[1, 2])).unwrap();
        assert_eq!((taken.held, taken.has_news), (set(&[1]), true));
    }
}

#[test]
fn claims_at_the_same_time_never_overlap() {
    let (_folder, store) = store();
    let all: Vec<Key> = (0..200).map(key).collect();
    let claimed: Vec<Vec<Key>> = std::thread::scope(|scope| {
        let claim = || {
            let mut claims = store.create_claims().unwrap();
            let mut own = Vec::new();
            for batch in all.chunks(7) {
                let held = claims.claim_free(batch).unwrap().held;
                own.extend(batch.iter().copied().filter(|key| !held.contains(key)));
            }
            (own, claims)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        ended.into_iter().map(|(own, _claims)| own).collect()
    });
    let mut every: Vec<Key> = claimed.into_iter().flatten().collect();
    every.sort();
    assert_eq!(every, all);
}
