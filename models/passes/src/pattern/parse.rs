//! Parses the text of patterns.

use super::{PatternCall, PatternForm};
use serde_json::Value as Json;

type Parsed<T> = Result<T, String>;

const MAX_DEPTH: usize = 64;

pub(super) fn parse_pattern(text: &str) -> Parsed<PatternForm> {
    let mut parser = Parser { rest: text, depth: 0 };
    let form = parser.parse_choice()?;
    parser.expect_end()?;
    Ok(form)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn parse_choice(&mut self) -> Parsed<PatternForm> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("operators are nested deeper than {MAX_DEPTH} levels"));
        }
        let mut forms = vec![self.parse_form()?];
        while self.take_sign("|") {
            forms.push(self.parse_form()?);
        }
        self.depth -= 1;
        Ok(if forms.len() == 1 { forms.remove(0) } else { PatternForm::Choice(forms) })
    }

    fn parse_form(&mut self) -> Parsed<PatternForm> {
        if self.take_sign("#") {
            return Ok(PatternForm::Constant(self.parse_word("a name")?.to_owned()));
        }
        if self.peek_sign().is_some_and(|sign| sign.is_ascii_digit() || sign == '-') {
            let text = self.while_some(|sign| sign.is_ascii_alphanumeric() || "+-.".contains(sign));
            return text.parse().map(PatternForm::Number).map_err(|_| format!("`{text}` is not a number"));
        }
        let name = self.parse_word("a pattern")?;
        if self.take_sign("@") {
            return Ok(PatternForm::Named(name.to_owned(), Box::new(self.parse_form()?)));
        }
        if !self.peek_sign().is_some_and(|sign| "/({?".contains(sign)) {
            return Ok(PatternForm::Any((name != "_").then(|| name.to_owned())));
        }
        self.parse_call(name)
    }

    fn parse_call(&mut self, first: &str) -> Parsed<PatternForm> {
        let mut operators = vec![first.to_owned()];
        while self.take_sign("/") {
            operators.push(self.parse_word("an operator")?.to_owned());
        }
        let mut attributes = Vec::new();
        if self.take_sign("{") {
            while !self.take_sign("}") {
                if !attributes.is_empty() {
                    self.expect_sign(",")?;
                }
                let key = self.parse_word("an attribute")?.to_owned();
                self.expect_sign("=")?;
                let text = self.while_some(|sign| !",}".contains(sign)).trim();
                let value: Json =
                    serde_json::from_str(text).map_err(|_| format!("`{text}` is not an attribute value"))?;
                attributes.push((key, value));
            }
        }
        let is_optional = self.take_sign("?");
        self.expect_sign("(")?;
        let (mut inputs, mut is_open) = (Vec::new(), false);
        while !self.take_sign(")") {
            if !inputs.is_empty() && !self.take_sign(",") {
                return Err(format!("expected `,` or `)`, found {}", self.describe_next()));
            }
            if self.take_sign("..") {
                is_open = true;
                self.expect_sign(")")?;
                break;
            }
            inputs.push(self.parse_choice()?);
        }
        if is_optional && inputs.is_empty() {
            return Err("an optional operator needs an input".to_owned());
        }
        Ok(PatternForm::Call(PatternCall { operators, attributes, inputs, is_open, is_optional }))
    }

    fn parse_word(&mut self, what: &str) -> Parsed<&'a str> {
        self.skip_spaces();
        match self.while_some(|sign| sign.is_ascii_alphanumeric() || sign == '_') {
            "" => Err(format!("expected {what}, found {}", self.describe_next())),
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

    fn peek_sign(&mut self) -> Option<char> {
        self.skip_spaces();
        self.rest.chars().next()
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect_sign(&mut self, sign: &str) -> Parsed<()> {
        if self.take_sign(sign) { Ok(()) } else { Err(format!("expected `{sign}`, found {}", self.describe_next())) }
    }

    fn expect_end(&mut self) -> Parsed<()> {
        match self.peek_sign() {
            None => Ok(()),
            Some(_) => Err(format!("expected the end, found {}", self.describe_next())),
        }
    }

    fn describe_next(&mut self) -> String {
        self.peek_sign().map_or_else(|| "the end".to_owned(), |sign| format!("`{sign}`"))
    }
}
