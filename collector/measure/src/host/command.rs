//! Command line of this process with passwords removed, for locks, journals and a store's status.

pub fn own_command() -> String {
    let words = std::env::args_os().map(|word| without_password(&word.to_string_lossy()));
    words.collect::<Vec<String>>().join(" ")
}

/// Returns the command line for readers: the program without its folder, and words with spaces in quotes.
pub fn quoted_command() -> String {
    let words = std::env::args_os().map(|word| without_password(&word.to_string_lossy()));
    let name = |program: String| program.rsplit('/').next().unwrap_or_default().to_owned();
    let words = words.enumerate().map(|(place, word)| if place == 0 { name(word) } else { quote_word(word) });
    words.collect::<Vec<String>>().join(" ")
}

fn quote_word(word: String) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@+%~".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Removes the password from an address; other text is returned unchanged.
pub fn without_password(text: &str) -> String {
    split_password(text).0
}

/// Returns an address without secrets, and the password, which follows the user name or is the setting `password`.
pub fn split_password(text: &str) -> (String, Option<&str>) {
    let Some((scheme, rest)) = text.split_once("://") else { return (text.to_owned(), None) };
    // A password may contain any character, even one that should be percent-encoded.
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let (user, behind_user) = match user.and_then(|user| user.split_once(':')) {
        Some((user, password)) => (Some(user), Some(password)),
        None => (user, None),
    };
    let (place, settings) = place.split_once('?').unwrap_or((place, ""));
    let (secret, open): (Vec<&str>, Vec<&str>) =
        settings.split('&').filter(|setting| !setting.is_empty()).partition(|setting| is_secret(setting));
    let password = behind_user.or_else(|| secret.iter().find_map(|setting| setting.strip_prefix("password=")));
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let settings = if open.is_empty() { String::new() } else { format!("?{}", open.join("&")) };
    (format!("{scheme}://{user}{place}{settings}"), password)
}

/// Returns whether a setting of an address is secret, such as `password=`, `sslpassword=` or `passfile=`.
fn is_secret(setting: &str) -> bool {
    let name = setting.split('=').next().unwrap_or_default().to_ascii_lowercase();
    name.contains("pass") || name.contains("secret") || name.contains("token")
}

#[cfg(test)]
mod tests {
    use super::{quote_word, without_password};

    #[test]
    fn words_with_spaces_are_quoted() {
        let quoted = ["--op", "a b", "it's", ""].map(|word| quote_word(word.to_owned()));
        assert_eq!(quoted, ["--op", "'a b'", r"'it'\''s'", "''"]);
    }

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
