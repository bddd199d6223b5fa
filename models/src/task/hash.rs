//! Hash of a task: equal tasks have equal hashes, on every machine and in every version. The hash is computed over JSON
//! with sorted keys and no spaces, independent of field order and JSON library. Renaming a field or a variant changes
//! it, and stored datasets would not match new tasks; the tests below guard against that.

use crate::task::Task;
use serde_json::Value;

/// Prefix of the hashed text; changing it changes all hashes, for when the meaning of tasks changes.
const DOMAIN: &[u8] = b"opcollect task 1\n";

impl Task {
    /// Returns 32 hexadecimal digits that identify the task.
    pub fn hash(&self) -> String {
        let value = serde_json::to_value(self).expect("a task has only numbers, texts and lists");
        let mut text = String::new();
        write_canonical(&value, &mut text);
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN);
        hasher.update(text.as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            write_list(('{', '}'), entries, text, |(key, value), text| {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
            });
        }
        Value::Array(items) => write_list(('[', ']'), items, text, write_canonical),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

fn write_list<T>(
    (open, close): (char, char),
    items: impl IntoIterator<Item = T>,
    text: &mut String,
    mut write_item: impl FnMut(T, &mut String),
) {
    text.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_item(item, text);
    }
    text.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::tests::conv_bias_relu;
    use expect_test::expect;

    #[test]
    fn the_hash_of_a_known_task_never_changes() {
        let task = conv_bias_relu();
        let mut text = String::new();
        write_canonical(&serde_json::to_value(&task).unwrap(), &mut text);
        expect![[r#"{"parameters":[{"is_constant":false,"ty":{"dtype":"f32","shape":[1,3,224,224]}},{"is_constant":true,"ty":{"dtype":"f32","shape":[64,3,7,7]}},{"is_constant":true,"ty":{"dtype":"f32","shape":[64]}}],"steps":[{"inputs":[{"parameter":0},{"parameter":1}],"op":{"dilations":[1,1],"groups":1,"kind":"conv","pads":[3,3,3,3],"strides":[2,2]},"output":{"dtype":"f32","shape":[1,64,112,112]}},{"inputs":[{"step":0},{"parameter":2}],"op":{"axis":1,"kind":"bias_add"},"output":{"dtype":"f32","shape":[1,64,112,112]}},{"inputs":[{"step":1}],"op":{"function":"relu","kind":"unary"},"output":{"dtype":"f32","shape":[1,64,112,112]}}]}"#]].assert_eq(&text);
        expect!["91de7835391f135360dcb7de1ed5e3ef"].assert_eq(&task.hash());
    }

    #[test]
    fn any_difference_gives_another_hash() {
        let task = conv_bias_relu();
        let mut shorter = task.clone();
        shorter.steps.pop();
        let mut variable = task.clone();
        variable.parameters[1].is_constant = false;
        assert_ne!(task.hash(), shorter.hash());
        assert_ne!(task.hash(), variable.hash());
    }
}
