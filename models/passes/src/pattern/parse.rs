//! The text of a pattern.

use super::{PatternCall, PatternForm};
use serde_json::Value as Json;

type Parsed<T> = Result<T, String>;

/// Operators within operators.
const MAX_DEPTH: usize = 64;

pub(super) fn pattern(text: &str) -> Parsed<PatternForm> {
    let mut parser = Parser { rest: text, depth: 0 };
    let form = parser.choice()?;
    parser.end()?;
    Ok(form)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn choice(&mut self) -> Parsed<PatternForm> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("operators are nested more than {MAX_DEPTH} deep"));
        }
        let mut forms = vec![self.form()?];
        while self.take("|") {
            forms.push(self.form()?);
        }
        self.depth -= 1;
        Ok(if forms.len() == 1 { forms.remove(0) } else { PatternForm::Choice(forms) })
    }

    fn form(&mut self) -> Parsed<PatternForm> {
        if self.take("#") {
            return Ok(PatternForm::Constant(self.word("a name")?.to_owned()));
        }
        if self.peek().is_some_and(|sign| sign.is_ascii_digit() || sign == '-') {
            let text = self.while_some(|sign| sign.is_ascii_alphanumeric() || "+-.".contains(sign));
            return text.parse().map(PatternForm::Number).map_err(|_| format!("`{text}` is no number"));
        }
        let name = self.word("a pattern")?;
        if self.take("@") {
            return Ok(PatternForm::Named(name.to_owned(), Box::new(self.form()?)));
        }
        if !self.peek().is_some_and(|sign| "/({?".contains(sign)) {
            return Ok(PatternForm::Any((name != "_").then(|| name.to_owned())));
        }
        self.call(name)
    }

    fn call(&mut self, first: &str) -> Parsed<PatternForm> {
        let mut operators = vec![first.to_owned()];
        while self.take("/") {
            operators.push(self.word("an operator")?.to_owned());
        }
        let mut attributes = Vec::new();
        if self.take("{") {
            while !self.take("}") {
                if !attributes.is_empty() {
                    self.expect(",")?;
                }
                let key = self.word("an attribute")?.to_owned();
                self.expect("=")?;
                let text = self.while_some(|sign| !",}".contains(sign)).trim();
                let value: Json =
                    serde_json::from_str(text).map_err(|_| format!("`{text}` is no value of an attribute"))?;
                attributes.push((key, value));
            }
        }
        let is_optional = self.take("?");
        self.expect("(")?;
        let (mut inputs, mut is_open) = (Vec::new(), false);
        while !self.take(")") {
            if !inputs.is_empty() && !self.take(",") {
                return Err(format!("expected `,` or `)`, found {}", self.found()));
            }
            if self.take("..") {
                is_open = true;
                self.expect(")")?;
                break;
            }
            inputs.push(self.choice()?);
        }
        if is_optional && inputs.is_empty() {
            return Err("an optional operator needs an input".to_owned());
        }
        Ok(PatternForm::Call(PatternCall { operators, attributes, inputs, is_open, is_optional }))
    }

    fn word(&mut self, what: &str) -> Parsed<&'a str> {
        self.skip_spaces();
        match self.while_some(|sign| sign.is_ascii_alphanumeric() || sign == '_') {
            "" => Err(format!("expected {what}, found {}", self.found())),
            word => Ok(word),
        }
    }

    fn while_some(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|sign| !belongs(sign)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_spaces();
        self.rest.chars().next()
    }

    fn take(&mut self, sign: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.take(sign) { Ok(()) } else { Err(format!("expected `{sign}`, found {}", self.found())) }
    }

    fn end(&mut self) -> Parsed<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(format!("expected the end, found {}", self.found())),
        }
    }

    fn found(&mut self) -> String {
        self.peek().map_or_else(|| "the end".to_owned(), |sign| format!("`{sign}`"))
    }
}
