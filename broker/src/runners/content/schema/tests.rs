use proptest::prelude::*;
use serde_json::json;

use super::*;

fn schema() -> ParameterSchema {
    let text = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "required": ["steps", "rate"],
        "properties": {
            "steps": { "type": "integer", "minimum": 1, "exclusiveMaximum": 1001 },
            "batch": { "type": "integer", "multipleOf": 8, "default": 32 },
            "rate": { "type": "string", "format": "decimal", "formatMinimum": "0", "formatMaximum": "1", "default": "0.0002" },
            "name": { "type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$" },
            "mode": { "enum": ["full", "lora"], "default": "lora" },
            "layers": { "type": "array", "minItems": 1, "maxItems": 3, "uniqueItems": true,
                "items": { "type": "object", "additionalProperties": false,
                    "properties": { "rank": { "type": "integer", "default": 8 }, "on": { "type": "boolean" } } } },
        },
    });
    ParameterSchema::read(&text).unwrap()
}

#[test]
fn defaults_are_filled_in_at_every_depth() {
    let filled = schema().apply(&json!({ "steps": 1, "layers": [{ "on": true }] })).unwrap();
    assert_eq!(
        filled,
        json!({ "steps": 1, "batch": 32, "rate": "0.0002", "mode": "lora",
            "layers": [{ "rank": 8, "on": true }] })
    );
    assert_eq!(schema().apply(&filled).unwrap(), filled);
}

#[test]
fn what_does_not_fit_is_named() {
    for (value, words) in [
        (json!({}), "parameters: steps is missing"),
        (json!({ "steps": 0 }), "parameters.steps: must be at least 1"),
        (json!({ "steps": 1001 }), "parameters.steps: must be at most 1000"),
        (json!({ "steps": "1" }), "parameters.steps: must be an integer"),
        (json!({ "steps": 1.0 }), "parameters.steps: is a fraction"),
        (json!({ "steps": 1, "rate": 0.5 }), "parameters.rate: is a fraction"),
        (json!({ "steps": 1, "rate": "fast" }), "parameters.rate: must be a decimal"),
        (json!({ "steps": 1, "rate": "1.0000001" }), "parameters.rate: must be at most 1"),
        (json!({ "steps": 1, "rate": "-0.1" }), "parameters.rate: must be at least 0"),
        (json!({ "steps": 1, "batch": 12 }), "parameters.batch: must be a multiple of 8"),
        (json!({ "steps": 1, "name": "a" }), "at least 2 characters"),
        (json!({ "steps": 1, "name": "abcde" }), "at most 4 characters"),
        (json!({ "steps": 1, "name": "ABC" }), "pattern"),
        (json!({ "steps": 1, "mode": "half" }), "none of the values"),
        (json!({ "steps": 1, "setps": 2 }), "setps is not a member"),
        (json!({ "steps": 1, "layers": [] }), "at least 1 entries"),
        (json!({ "steps": 1, "layers": [{}, {}] }), "twice"),
        (
            json!({ "steps": 1, "layers": [{ "rank": "x" }] }),
            "parameters.layers.0.rank: must be an integer",
        ),
        (json!([]), "parameters: must be an object"),
    ] {
        let fault = schema().apply(&value).unwrap_err().told("parameters").en;
        assert!(fault.contains(words), "{value}: {fault}");
    }
}

#[test]
fn unknown_and_incoherent_keywords_are_refused_by_name() {
    let whole = |member: Value| json!({ "type": "object", "additionalProperties": false, "properties": { "a": member } });
    for (value, words) in [
        (json!({ "type": "string" }), "type object"),
        (json!({ "type": "object" }), "additionalProperties"),
        (whole(json!({ "type": "number" })), "format decimal"),
        (whole(json!({ "type": "null" })), "null"),
        (whole(json!({ "$ref": "#/x" })), "$ref"),
        (whole(json!({ "type": "integer", "oneOf": [] })), "oneOf"),
        (whole(json!({ "type": "integer", "minimum": 0.5 })), "minimum"),
        (whole(json!({ "type": "integer", "minimum": 0, "exclusiveMinimum": 0 })), "either"),
        (whole(json!({ "type": "string", "minimum": 0 })), "minimum is only for an integer"),
        (whole(json!({ "type": "string", "format": "email" })), "format"),
        (whole(json!({ "type": "string", "formatMaximum": "1" })), "need format decimal"),
        (whole(json!({ "type": "string", "pattern": "(?=x)" })), "regular expression"),
        (whole(json!({ "type": "integer", "default": "x" })), "default"),
        (whole(json!({ "enum": [0.5] })), "fractions"),
        (whole(json!({})), "type (or enum"),
        (whole(json!(true)), "must be an object"),
    ] {
        let fault = ParameterSchema::read(&value).unwrap_err().told("schema").en;
        assert!(fault.contains(words), "{value}: {fault}");
    }
    let mut deep = json!({ "type": "integer" });
    for _ in 0..40 {
        deep = json!({ "type": "array", "items": deep });
    }
    assert!(ParameterSchema::read(&whole(deep)).unwrap_err().why.en.contains("deeper"));
}

proptest! {
    #[test]
    fn filling_in_twice_is_filling_in_once(steps in -5_i64..1500, batch in prop::option::of(0_i64..100), rate in "\\PC{0,5}|0\\.[0-9]{1,4}") {
        let mut value = json!({ "steps": steps, "rate": rate });
        if let Some(batch) = batch {
            value["batch"] = json!(batch);
        }
        if let Ok(filled) = schema().apply(&value) {
            prop_assert_eq!(schema().apply(&filled).unwrap(), filled.clone());
            prop_assert_eq!(&filled["steps"], &value["steps"]);
        }
    }
}
