// The OpenAPI document as a page.

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const api = await (await fetch("v1/openapi.json")).json();

function shape(schema) {
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.anyOf ?? schema.oneOf) return (schema.anyOf ?? schema.oneOf).map(shape).join(" | ");
  if (schema.$ref) return schema.$ref.split("/").pop();
  return [schema.type].flat().filter(Boolean).join(" | ") || "any";
}

function rows(pairs) {
  return make("dl", { class: "facts" }, ...pairs.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
}

function section(path, method, operation) {
  const id = operation.operationId;
  const parts = [make("h2", { id }, make("code", {}, `${method.toUpperCase()} ${path}`)), make("p", {}, operation.description ?? operation.summary)];
  if (operation.parameters?.length) {
    parts.push(make("h3", {}, "Parameters"), rows(operation.parameters.map((parameter) => [
      `${parameter.name} (${parameter.in})`,
      [shape(parameter.schema), parameter.description, parameter.required ? "required" : "",
        parameter.schema.default === undefined ? "" : `default ${parameter.schema.default}`].filter(Boolean).join("; "),
    ])));
  }
  const body = operation.requestBody?.content;
  if (body) {
    parts.push(make("h3", {}, "Body"), rows(Object.entries(body).map(([type, { schema }]) => [
      type, [schema.description, schema.example && JSON.stringify(schema.example)].filter(Boolean).join(": ") || shape(schema),
    ])));
  }
  parts.push(make("h3", {}, "Responses"), rows(Object.entries(operation.responses).map(([status, { description, content }]) => [
    status, [description, Object.keys(content ?? {}).join(", ")].filter(Boolean).join("; "),
  ])));
  return make("section", { "aria-labelledby": id }, ...parts);
}

const sections = Object.entries(api.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => section(path, method, operation)));
document.getElementById("operations").replaceChildren(...sections);
