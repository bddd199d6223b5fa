//! Makes the linker export the program's symbols to libraries that the program loads at run time.

fn main() {
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
