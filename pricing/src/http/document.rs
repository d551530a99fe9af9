//! The routes as an OpenAPI document.

use serde_json::{Value, json};

/// The document.
pub(super) fn openapi() -> Value {
    let text = |name: &str, what: &str| {
        json!({"name": name, "in": "query", "required": false, "description": what,
               "schema": {"type": "string"}})
    };
    let number = |name: &str, what: &str| {
        json!({"name": name, "in": "query", "required": false, "description": what,
               "schema": {"type": "integer", "minimum": 0}})
    };
    let flag = |name: &str, what: &str| {
        json!({"name": name, "in": "query", "required": false, "description": what,
               "schema": {"type": "boolean"}})
    };
    let answer = |what: &str| {
        json!({
            "200": {"description": what,
                    "content": {"application/json": {"schema": {"type": "object"}}}},
            "default": {"description": "An error: code, message, detail",
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}},
        })
    };
    let read = |summary: &str, parameters: Vec<Value>| json!({"get": {"summary": summary, "parameters": parameters, "responses": answer(summary)}});
    let write = |summary: &str, schema: Value| {
        json!({"post": {"summary": summary, "security": [{"token": []}],
            "requestBody": {"content": {"application/json": {"schema": schema}}},
            "responses": answer(summary)}})
    };
    let page = || vec![number("limit", "Rows per page"), number("offset", "Rows to skip")];
    let mut filters = page();
    filters.extend([
        text("gpu_model", "A model's id, name or alias, or a provider's own name"),
        text("provider", "Only this provider"),
        text("region", "Only this region"),
        text("zone", "Only this zone"),
        text("country", "Only this two-letter country"),
        text("billing_model", "on_demand, spot, or a form such as windows or capacity_block"),
        text("gpu_count", "8, or a share such as 1/6"),
        text("max_price", "At most this many CNY per hour, exact"),
        text("stock", "in_stock, low, sold_out or unstated"),
        number("min_memory_mib", "At least this much main memory"),
        number("max_age_seconds", "Only prices that were read within this time"),
        flag("fresh", "Only prices that are not older than prices of their kind may be"),
        flag("is_active", "Those that can be had (the default), or those that cannot"),
        flag("launchable", "Only what a connected account can launch now"),
        flag("all_forms", "Forms other than on demand and spot too"),
    ]);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Runwhere prices",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Prices are texts with every digit. List prices need no token; account prices, refreshes and decisions do.",
        },
        "paths": {
            "/api/v1/comparison/summary": read("Price range of each model", Vec::new()),
            "/api/v1/comparison/quote": {"post": {
                "summary": "The best offers for a question, with reasons",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Question"}}}},
                "responses": answer("A quote"),
            }},
            "/api/v1/offers": read("A page of offers", filters),
            "/api/v1/prices/sources": read("How the sources stand", vec![flag("strict", "503 where one is not well")]),
            "/api/v1/prices/quotes/{id}": {"get": {
                "summary": "A quote again, byte for byte",
                "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
                "responses": answer("The quote"),
            }},
            "/api/v1/prices/offer": read("One offer and what is to be said of it", vec![text("offer", "Key or code")]),
            "/api/v1/prices/changes": read("Price changes, newest first", {
                let mut parameters = page();
                parameters.extend([text("provider", "Whose"), text("offer", "Of one offer's key")]);
                parameters
            }),
            "/api/v1/prices/states": read("States of prices that are kept", Vec::new()),
            "/api/v1/prices/diff": read("What changed between two states", {
                let mut parameters = page();
                parameters.extend([text("from", "State id"), text("to", "State id; the present one without")]);
                parameters
            }),
            "/api/v1/prices/openapi.json": read("This document", Vec::new()),
            "/api/v1/prices/fx": read("Exchange rates in force", Vec::new()),
            "/api/v1/prices/quarantine": read("Prices that wait for a decision", Vec::new()),
            "/api/v1/prices/quarantine/decide": write("Accepts or turns down a price", json!({
                "type": "object", "required": ["offer_key", "accept"],
                "properties": {"offer_key": {"type": "string"}, "accept": {"type": "boolean"}}})),
            "/api/v1/prices/refresh": write("Reads sources now", json!({
                "type": "object", "properties": {"provider": {"type": "string"}}})),
            "/api/v1/prices/accept-next": write("Takes a source's next reading as it comes", json!({
                "type": "object", "required": ["provider"], "properties": {"provider": {"type": "string"}}})),
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {"type": "object", "properties": {
                    "code": {"type": "integer"}, "message": {"type": "string"}, "detail": {"type": "object"}}},
                "Question": {"type": "object", "properties": {
                    "gpu_model": {"type": "string"}, "gpu_count": {"type": "integer", "minimum": 1},
                    "task_type": {"enum": ["training", "inference", "notebook"]},
                    "spot_allowed": {"type": "boolean"},
                    "max_hourly_price": {"type": ["string", "number"], "description": "CNY, read exactly"},
                    "top_n": {"type": "integer"}, "provider": {"type": "string"}, "region": {"type": "string"},
                    "zone": {"type": "string"}, "country": {"type": "string"},
                    "min_memory_mib": {"type": "integer"}, "min_vcpus": {"type": "integer"},
                    "fresh_only": {"type": "boolean"}, "policy": {"enum": ["price", "reclaim"]},
                    "prefer_regions": {"type": "array", "items": {"type": "string"}},
                    "hours": {"type": ["string", "number"]}, "disk_gib": {"type": "integer"}}},
            },
        },
    })
}
