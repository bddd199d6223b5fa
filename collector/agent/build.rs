//! Lets libraries that are opened at run time find the functions that this program has for them.

fn main() {
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
