//! Exports the program's symbols to libraries that it loads at run time.

fn main() {
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
