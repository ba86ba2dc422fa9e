"""DynamoDB's dialect: items, operations and answers as the JSON that travels. Pure: nothing here sends anything."""
