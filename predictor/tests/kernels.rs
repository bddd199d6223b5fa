//! Tests predictor files with a section of language-model kernels: each section can be read alone; damage is reported.
#![allow(missing_docs)]

use predictor::{bundle, kernels};
use serving::{Kernel, Learned};

#[test]
fn a_file_of_kernels_alone_is_read_and_says_what_it_lacks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kernels.opp");
    std::fs::write(&path, bundle::with_kernels(None, &Learned::default()).expect("bytes")).expect("a file");
    assert!(bundle::read_kernels(&path).expect("the section").is_some());
    assert!(bundle::read_about(&path).expect("a bundle").is_none());
    let error = bundle::read_bundle(&path).expect_err("there is no predictor").to_string();
    assert!(error.contains("it contains only models of language-model kernels"), "{error}");
    // The same predictor with and without the section.
    let again = folder.path().join("again.opp");
    std::fs::write(&again, bundle::with_kernels(Some(&path), &Learned::default()).expect("bytes")).expect("a file");
    assert_eq!(std::fs::read(&path).expect("one"), std::fs::read(&again).expect("two"));
    let mut bytes = std::fs::read(&path).expect("bytes");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("a file");
    assert!(bundle::read_kernels(&path).expect_err("damage").to_string().contains("the file is damaged"));
}

#[test]
fn power_limits_are_checked() {
    let device = kernels::find_device("h100_sxm").expect("a device");
    let kernel: Kernel = "gemm:m=64,n=64,k=64".parse().expect("a kernel");
    let refuse = |limit| {
        let answer = kernels::predict_kernel(&Learned::default(), &kernel, device, Some(limit));
        answer.expect_err("a limit that cannot be").to_string()
    };
    assert!(refuse(20.0).contains("has a power limit of 700 W"), "{}", refuse(20.0));
    assert!(refuse(500.0).contains("no power model of `gemm`"), "{}", refuse(500.0));
    assert!(kernels::find_device("h1000").expect_err("no such device").to_string().contains("unknown device"));
}
