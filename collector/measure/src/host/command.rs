//! The command line of this process, as others may read it: in locks, journals and a store's status.

/// The words of this process, without passwords.
pub fn own_command() -> String {
    let words = std::env::args_os().map(|word| without_password(&word.to_string_lossy()));
    words.collect::<Vec<String>>().join(" ")
}

/// An address without what only its owner should know: what stands behind a user's name, and settings of passwords. What is no
/// address is left alone.
pub fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // A password may hold any sign, also where it should be written as a number.
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user.split(':').next().unwrap_or_default()), place),
        None => (None, rest),
    };
    let (place, settings) = match place.split_once('?') {
        Some((place, settings)) => (place, settings),
        None => (place, ""),
    };
    let settings: Vec<&str> =
        settings.split('&').filter(|setting| !setting.is_empty() && !is_secret(setting)).collect();
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let settings = if settings.is_empty() { String::new() } else { format!("?{}", settings.join("&")) };
    format!("{scheme}://{user}{place}{settings}")
}

/// Whether a setting of an address is a password: `password=`, `sslpassword=`, `passfile=` and their like.
fn is_secret(setting: &str) -> bool {
    let name = setting.split('=').next().unwrap_or_default().to_ascii_lowercase();
    name.contains("pass") || name.contains("secret") || name.contains("token")
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn passwords_are_left_out_wherever_they_stand() {
        for (text, shown) in [
            ("postgres://u:secret@h/d", "postgres://u@h/d"),
            ("--sink=postgres://u:se@c:r/e?t@h/d", "--sink=postgres://u@h/d"),
            ("postgres://u@h/d?password=secret&sslmode=require", "postgres://u@h/d?sslmode=require"),
            ("postgres://h/d?sslpassword=secret", "postgres://h/d"),
            ("postgres:///d", "postgres:///d"),
            ("s3://bucket/place", "s3://bucket/place"),
            ("--modelname", "--modelname"),
        ] {
            assert_eq!(without_password(text), shown);
            assert!(!without_password(text).contains("secret"));
        }
    }
}
