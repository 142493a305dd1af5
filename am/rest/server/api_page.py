"""The page at /docs: shows the OpenAPI document with a small script, without resources from other hosts.

Owner: none (data).
"""

from __future__ import annotations

from typing import Final

API_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Yarrow REST API</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #222 }
h2 { margin-top: 2em; border-bottom: 1px solid #ccc }
details { border: 1px solid #ddd; border-radius: 4px; margin: .4em 0; padding: .3em .7em }
summary { cursor: pointer; font-family: ui-monospace, monospace }
summary span { font-family: system-ui, sans-serif; color: #666 }
b { display: inline-block; width: 4.5em }
pre { background: #f6f6f6; overflow: auto; padding: .6em }
</style>
<h1>Yarrow REST API</h1>
<p>Every path works bare and under <code>/v1</code>. The same as a document: <a href="openapi.json">OpenAPI</a>.</p>
<main>Loading&hellip;</main>
<script>
const main = document.querySelector("main");
const element = (name, text) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
};
const resolve = (schema, all, seen) => {
  if (!schema) return undefined;
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return seen.includes(name) ? name : resolve(all[name], all, [...seen, name]);
  }
  if (schema.anyOf) {
    return schema.anyOf.map(part => resolve(part, all, seen)).filter(part => part !== "null")[0] ?? "null";
  }
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return schema.const;
  if (schema.type === "array") return [resolve(schema.items, all, seen)];
  if (schema.properties) {
    return Object.fromEntries(
      Object.entries(schema.properties).map(([name, part]) => [name, resolve(part, all, seen)]));
  }
  if (schema.additionalProperties) return { "*": resolve(schema.additionalProperties, all, seen) };
  return schema.type ?? "any";
};
const show = (path, method, operation, all) => {
  const box = element("details"), head = element("summary");
  head.append(element("b", method.toUpperCase()), path + "  ", element("span", operation.summary ?? ""));
  box.append(head);
  if (operation.description) box.append(element("p", operation.description));
  for (const parameter of operation.parameters ?? []) {
    box.append(element("div", `${parameter.in}: ${parameter.name} ${parameter.description ?? ""}`));
  }
  for (const [type, body] of Object.entries(operation.requestBody?.content ?? {})) {
    box.append(element("p", `Request, ${type}`));
    box.append(element("pre", JSON.stringify(resolve(body.schema, all, []), null, 2)));
  }
  for (const [status, answer] of Object.entries(operation.responses)) {
    box.append(element("p", `${status}: ${answer.description}`));
    const content = Object.values(answer.content ?? {})[0];
    if (content?.schema && status < 300) {
      box.append(element("pre", JSON.stringify(resolve(content.schema, all, []), null, 2)));
    }
  }
  return box;
};
fetch("openapi.json").then(answer => answer.json()).then(api => {
  main.textContent = "";
  const groups = {};
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      (groups[operation.tags?.[0] ?? ""] ??= []).push([path, method, operation]);
    }
  }
  for (const [title, operations] of Object.entries(groups)) {
    main.append(element("h2", title));
    for (const [path, method, operation] of operations) {
      main.append(show(path, method, operation, api.components?.schemas ?? {}));
    }
  }
});
</script>
</html>
"""
